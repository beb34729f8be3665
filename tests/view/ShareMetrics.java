import com.sun.tools.attach.VirtualMachine;
import io.prometheus.jmx.JmxCollector;
import io.prometheus.metrics.expositionformats.PrometheusTextFormatWriter;
import io.prometheus.metrics.model.registry.PrometheusRegistry;
import java.io.ByteArrayInputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.TreeSet;
import javax.management.MBeanAttributeInfo;
import javax.management.MBeanServerConnection;
import javax.management.ObjectName;
import javax.management.remote.JMXConnector;
import javax.management.remote.JMXConnectorFactory;
import javax.management.remote.JMXServiceURL;

/** Asks the JVM of a broker: {@code PID RULES}. Prints every MBean of kafka.server as {@code mbean NAME TAB ATTRIBUTE},
 * then what the JMX exporter of Prometheus makes of them by the file of rules. */
public final class ShareMetrics {
    public static void main(String[] arguments) throws Exception {
        VirtualMachine machine = VirtualMachine.attach(arguments[0]);
        String address = machine.startLocalManagementAgent();
        machine.detach();
        try (JMXConnector connector = JMXConnectorFactory.connect(new JMXServiceURL(address))) {
            MBeanServerConnection server = connector.getMBeanServerConnection();
            for (ObjectName name : new TreeSet<>(server.queryNames(new ObjectName("kafka.server:*"), null))) {
                for (MBeanAttributeInfo attribute : server.getMBeanInfo(name).getAttributes()) {
                    System.out.println("mbean " + name + "\t" + attribute.getName());
                }
            }
        }
        String rules = "jmxUrl: " + address + "\n" + Files.readString(Path.of(arguments[1]));
        PrometheusRegistry registry = new PrometheusRegistry();
        new JmxCollector(new ByteArrayInputStream(rules.getBytes(StandardCharsets.UTF_8))).register(registry);
        new PrometheusTextFormatWriter(false).write(System.out, registry.scrape());
    }
}

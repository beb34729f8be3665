import java.io.FileOutputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.MiniYARNCluster;

/** YARN with one node, until stdin ends. Writes yarn-site.xml into the folder of the first argument once it is ready. */
public class YarnCluster {
    public static void main(String[] arguments) throws Exception {
        var settings = new YarnConfiguration();
        var scheduler = "org.apache.hadoop.yarn.server.resourcemanager.scheduler.fifo.FifoScheduler";
        settings.set(YarnConfiguration.RM_SCHEDULER, scheduler);
        settings.setInt(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, 256);
        settings.setBoolean(YarnConfiguration.NM_VMEM_CHECK_ENABLED, false);
        settings.setBoolean(YarnConfiguration.NM_PMEM_CHECK_ENABLED, false);
        settings.setBoolean(YarnConfiguration.NM_DISK_HEALTH_CHECK_ENABLE, false);
        try (var cluster = new MiniYARNCluster("acktrail", 1, 1, 1)) {
            cluster.init(settings);
            cluster.start();
            cluster.waitForNodeManagersToConnect(120_000);
            var folder = Path.of(arguments[0]);
            try (var file = new FileOutputStream(folder.resolve("new").toFile())) {
                cluster.getConfig().writeXml(file);
            }
            Files.move(folder.resolve("new"), folder.resolve("yarn-site.xml"));
            System.in.read();
        }
        System.exit(0);
    }
}
